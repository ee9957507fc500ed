"""The requests that frameworks send by `AIOKafkaClient.send`, and what responses look like.

These are CreateTopics and Metadata. `aiokclient.Client.request` sends any request.
"""
