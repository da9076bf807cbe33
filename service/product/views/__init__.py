"""Models as graphs, drawings and exports."""
