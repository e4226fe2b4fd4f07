"""Records of a run in memory: epochs, results, metrics. Imports the ground floor only."""
