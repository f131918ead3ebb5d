"""Traffic of training jobs: volumes, flows, throughput, loss, and the figures of the published traffic study."""
