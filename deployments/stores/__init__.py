"""The control plane's database behind tenancy's ports: SQLAlchemy and Alembic, SQLite for now."""
