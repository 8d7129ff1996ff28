"""The edge: settings, CLI, gateway, Ray Serve, stores. The only place that knows a framework."""
