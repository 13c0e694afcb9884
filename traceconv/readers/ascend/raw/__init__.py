"""Raw data of the CANN collector, and of frameworks.

Finding: ``reader``, ``folders``, ``clock``. Reading: ``content`` puts everything in place.
``slice_files`` cuts binary files into records; ``scheduler_logs`` and ``steps`` decode those of a
device, ``host_records`` and ``host_launches`` those of the host, ``framework_*`` those of PyTorch
and MindSpore; ``device_tasks`` joins tasks with their launches.
"""
