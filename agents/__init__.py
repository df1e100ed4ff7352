OWNER = "streaming-hub"
