"""gRPC: how calls come in from it and are answered; the server, health and reflection."""
