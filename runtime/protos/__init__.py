"""Models as protobuf messages: taken apart, cut down and walked through."""
