"""From a graph file to the few nodes that an inspector sees. `driple.pipeline.graph.public` is the face of it."""
