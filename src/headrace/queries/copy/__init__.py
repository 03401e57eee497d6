"""The copy of an application's stores that an instance keeps, and how it follows the snapshots."""
