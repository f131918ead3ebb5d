"""From the states of all nodes to one vector for each graph, one way to a file with its formula."""
