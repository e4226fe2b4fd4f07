"""Recovery policies: which host runs which servers after hosts vanish or join. Imports nothing of the pipeline."""
