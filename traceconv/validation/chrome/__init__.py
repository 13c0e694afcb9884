"""What readers of trace-event JSON refuse or misread."""
