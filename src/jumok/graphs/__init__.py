"""Graph attention: edges, layers, networks, files, sampling and maps."""
