"""What tests share: commands, tiny models, servers, comparisons."""
