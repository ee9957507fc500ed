"""Send any request of the protocol. The client routes and repeats it, and decodes the response.

python examples/low_level.py [BOOTSTRAP]
"""

import asyncio
import sys

from aiokclient import AnyBroker, Broker, Client
from aiokclient.protocol import messages


async def main(bootstrap: str = "localhost:9092") -> None:
    async with Client(bootstrap_servers=bootstrap) as client:
        cluster = await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
        print(f"cluster {cluster.cluster_id}: {len(cluster.brokers)} broker(s)")
        # Synchronous: the requests to all brokers are in flight at the same time.
        question = messages.ApiVersionsRequest(
            client_software_name="example", client_software_version="1.0"
        )
        pending = {
            broker.node_id: client.send(question, to=Broker(broker.node_id))
            for broker in cluster.brokers
        }
        for node_id, handle in pending.items():
            print(f"broker {node_id} speaks {len((await handle).api_keys)} APIs")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
