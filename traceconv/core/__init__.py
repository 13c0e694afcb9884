"""What everything stands on: the model, times, errors; imports nothing of the other rooms."""
