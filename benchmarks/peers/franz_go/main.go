// Produces or consumes with franz-go, as told by name=value arguments; see measuring/spec.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type spec map[string]string

func (s spec) number(name string) int {
	n, err := strconv.Atoi(s[name])
	check(err)
	return n
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type counts struct {
	Messages int     `json:"messages"`
	Bytes    int     `json:"bytes"`
	CPU      float64 `json:"cpu_s"`
	Wall     float64 `json:"wall_s"`
	AtOnce   int     `json:"at_once"`
}

func cpu() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

type meter struct {
	silent bool
	counts counts
	cpu    float64
	began  time.Time
}

func (m *meter) begin() {
	runtime.GC()
	if !m.silent {
		fmt.Println("begin")
	}
	m.began, m.cpu = time.Now(), cpu()
}

func (m *meter) end() {
	m.counts.CPU = cpu() - m.cpu
	if m.counts.Wall == 0 {
		m.counts.Wall = time.Since(m.began).Seconds()
	}
	if !m.silent {
		fmt.Println("end")
	}
}

func values(s spec) [][]byte {
	data, err := os.ReadFile(s["payloads"])
	check(err)
	size := s.number("size")
	var pool [][]byte
	for at := 0; at < len(data); at += size {
		pool = append(pool, data[at:at+size])
	}
	return pool
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func connecting(s spec) []kgo.Opt {
	options := []kgo.Opt{kgo.SeedBrokers(s["bootstrap"])}
	if strings.HasSuffix(s["protocol"], "SSL") {
		authority, err := os.ReadFile(s["authority"])
		check(err)
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(authority) {
			check(errors.New("the authority has no certificate"))
		}
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: trusted}))
	}
	switch user, password := s["user"], s["password"]; s["mechanism"] {
	case "":
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		login := scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
		options = append(options, kgo.SASL(login))
	case "SCRAM-SHA-512":
		login := scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
		options = append(options, kgo.SASL(login))
	default:
		check(errors.New("unknown mechanism " + s["mechanism"]))
	}
	return options
}

func produce(s spec, topic string, count int, m *meter) {
	ctx := context.Background()
	options := append(connecting(s),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(codec(s["compression"])),
	)
	if s["tuned"] == "true" {
		options = append(options,
			kgo.ProducerBatchMaxBytes(int32(s.number("batch_bytes"))),
			kgo.ProducerLinger(time.Duration(s.number("linger_ms"))*time.Millisecond),
			kgo.MaxBufferedRecords(100_000))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	check(client.ProduceSync(ctx, kgo.StringRecord("first")).FirstErr())
	pool := values(s)
	var keys [][]byte
	if s["keyed"] == "true" {
		for n := range 10_000 {
			keys = append(keys, fmt.Appendf(nil, "customer-%07d", n))
		}
	}
	var good atomic.Int64
	promise := func(_ *kgo.Record, err error) {
		check(err)
		good.Add(1)
	}
	m.begin()
	for n := range count {
		record := &kgo.Record{Value: pool[n%len(pool)]}
		if keys != nil {
			record.Key = keys[n%len(keys)]
		}
		client.Produce(ctx, record, promise)
	}
	check(client.Flush(ctx))
	m.end()
	m.counts.Messages = int(good.Load())
}

func consume(s spec, topic string, count int, m *meter) {
	ctx := context.Background()
	places := map[int32]kgo.Offset{}
	for p := range s.number("partitions") {
		places[int32(p)] = kgo.NewOffset().AtStart()
	}
	m.begin()
	consumed := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: places})
	client, err := kgo.NewClient(append(connecting(s), consumed)...)
	check(err)
	for m.counts.Messages < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		if m.counts.Messages == 0 {
			m.counts.AtOnce, m.began = fetches.NumRecords(), time.Now()
		}
		fetches.EachRecord(func(record *kgo.Record) {
			m.counts.Bytes += len(record.Value)
			m.counts.Messages++
		})
	}
	m.counts.Wall = time.Since(m.began).Seconds()
	client.Close()
	m.end()
}

// Each poll accepts the records of the one before.
func share(s spec, topic string, count int, m *meter) {
	ctx := context.Background()
	m.begin()
	client, err := kgo.NewClient(append(connecting(s),
		kgo.ShareGroup(s["group"]),
		kgo.ConsumeTopics(topic),
		kgo.ShareMaxRecords(int32(s.number("records"))),
	)...)
	check(err)
	for m.counts.Messages < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		if m.counts.Messages == 0 {
			m.counts.AtOnce, m.began = fetches.NumRecords(), time.Now()
		}
		fetches.EachRecord(func(record *kgo.Record) {
			m.counts.Bytes += len(record.Value)
			m.counts.Messages++
		})
		if m.counts.Messages >= count {
			client.MarkAcks(kgo.AckAccept)
		}
	}
	m.counts.Wall = time.Since(m.began).Seconds()
	check(client.FlushAcks(ctx))
	client.Close()
	m.end()
}

func transactional(s spec, id string) []kgo.Opt {
	return append(connecting(s),
		kgo.TransactionalID(id),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(int32(s.number("batch_bytes"))),
		kgo.ProducerLinger(time.Duration(s.number("linger_ms"))*time.Millisecond),
	)
}

func failed(_ *kgo.Record, err error) { check(err) }

func transactions(s spec, topic string, count int, m *meter) {
	ctx := context.Background()
	client, err := kgo.NewClient(append(transactional(s, topic), kgo.DefaultProduceTopic(topic))...)
	check(err)
	defer client.Close()
	check(client.Ping(ctx))
	pool, records, n := values(s), s.number("records"), 0
	m.begin()
	for range count {
		check(client.BeginTransaction())
		for range records {
			client.Produce(ctx, &kgo.Record{Value: pool[n%len(pool)]}, failed)
			n++
		}
		check(client.Flush(ctx))
		check(client.EndTransaction(ctx, kgo.TryCommit))
		m.counts.Messages++
	}
	m.end()
}

func transform(s spec, topic string, count int, m *meter) {
	ctx := context.Background()
	output := s["output"]
	if topic == s["warm_topic"] {
		output = topic // The end of this topic is not read.
	}
	session, err := kgo.NewGroupTransactSession(append(transactional(s, topic),
		kgo.DefaultProduceTopic(output),
		kgo.ConsumerGroup(topic),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
	)...)
	check(err)
	defer session.Close()
	records := s.number("records")
	fetches := session.PollRecords(ctx, records)
	m.begin()
	for m.counts.Messages < count {
		check(session.Begin())
		for missing := records; ; fetches = session.PollRecords(ctx, missing) {
			check(fetches.Err())
			fetches.EachRecord(func(record *kgo.Record) {
				session.Produce(ctx, &kgo.Record{Value: record.Value}, failed)
			})
			if missing -= fetches.NumRecords(); missing <= 0 {
				break
			}
		}
		committed, err := session.End(ctx, kgo.TryCommit)
		check(err)
		if !committed {
			check(errors.New("a transaction was aborted"))
		}
		m.counts.Messages++
		if m.counts.Messages < count {
			fetches = session.PollRecords(ctx, records)
		}
	}
	m.end()
}

func main() {
	s := spec{}
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		s[name] = value
	}
	works := map[string]func(spec, string, int, *meter){
		"produce": produce, "consume": consume, "share": share, "transactions": transactions, "transform": transform,
	}
	work := works[s["mode"]]
	if warm := s.number("warm_count"); warm > 0 {
		work(s, s["warm_topic"], warm, &meter{silent: true})
	}
	m := &meter{}
	work(s, s["topic"], s.number("count"), m)
	line, err := json.Marshal(m.counts)
	check(err)
	fmt.Println(string(line))
}
