// Reads a topic with a share group of franz-go, and prints how often each record was delivered.
// Arguments: bootstrap servers, group, topic, number of records. A tenth of the records is released
// once, and everything else is accepted.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.ShareGroup(os.Args[2]),
		kgo.ConsumeTopics(os.Args[3]),
	)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for accepted := 0; accepted < count; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			deliveries := record.DeliveryCount()
			fmt.Println(record.Partition, record.Offset, deliveries)
			if record.Offset%10 == 0 && deliveries == 1 {
				record.Ack(kgo.AckRelease)
				return
			}
			record.Ack(kgo.AckAccept)
			accepted++
		})
	}
	check(client.FlushAcks(ctx))
	client.Close()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
