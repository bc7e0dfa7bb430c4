"""The REST service, and the client that feeds it a trace."""
