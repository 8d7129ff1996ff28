"""The service on Ray Serve: its application, its replicas, and the command that runs them."""
