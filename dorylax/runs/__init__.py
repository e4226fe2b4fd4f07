"""Records of a run in memory: epochs, results, metrics, servers. Imports the ground floor only."""
