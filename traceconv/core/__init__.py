"""What everything is built on: the model, times, errors; imports nothing of the other rooms."""
