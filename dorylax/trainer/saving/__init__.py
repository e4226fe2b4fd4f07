"""How a run is saved and brought back bit for bit."""
