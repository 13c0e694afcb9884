"""One replay of a job behind every statement about it: the graph of its operations, run again with
one thing changed."""
