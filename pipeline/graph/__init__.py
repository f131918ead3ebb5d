"""From a graph file to the nodes that an inspector reads. Other packages import `driple.pipeline.graph.public` only."""
