package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// With the options of its groups.
type franz struct{ group []kgo.Opt }

var franzCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (franz) produce(ctx context.Context, servers, topic, codec string, count int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers), kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(franzCodecs[codec]), kgo.AllowAutoTopicCreation())
	if err != nil {
		return err
	}
	defer client.Close()
	return franzProduce(ctx, client, "v", count)
}

func franzProduce(ctx context.Context, client *kgo.Client, prefix string, count int) error {
	records := make([]*kgo.Record, count)
	for i := range records {
		records[i] = &kgo.Record{Key: key(i), Value: value(prefix, i)}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// Gives so many records to take, or more.
func franzPoll(ctx context.Context, client *kgo.Client, count int, take func(*kgo.Record)) error {
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, failed := range fetches.Errors() {
			return failed.Err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			take(record)
			seen++
		})
	}
	return nil
}

func (f franz) consume(ctx context.Context, servers, topic, group string, count int, committed bool,
	tell func(int32, int64, []byte, []byte)) error {
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(append(f.group, kgo.SeedBrokers(servers), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level), kgo.DisableAutoCommit())...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := franzPoll(ctx, client, count, func(record *kgo.Record) {
		tell(record.Partition, record.Offset, record.Key, record.Value)
	}); err != nil {
		return err
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	return client.LeaveGroupContext(ctx)
}

func (franz) transact(ctx context.Context, servers, topic, id string, count int) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers), kgo.DefaultProduceTopic(topic), kgo.TransactionalID(id))
	if err != nil {
		return err
	}
	defer client.Close()
	for _, part := range []struct {
		prefix string
		end    kgo.TransactionEndTry
	}{{"c", kgo.TryCommit}, {"a", kgo.TryAbort}} {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := franzProduce(ctx, client, part.prefix, count); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, part.end); err != nil {
			return err
		}
	}
	return nil
}

func (franz) admin(ctx context.Context, servers, topic string) error {
	client, err := kgo.NewClient(append(franzLogin(), kgo.SeedBrokers(servers))...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	retention := "60000"
	if _, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &retention}, topic); err != nil {
		return err
	}
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			fmt.Println(len(topics[topic].Partitions), *config.Value)
		}
	}
	answers, err := admin.DeleteTopics(ctx, topic)
	if err != nil {
		return err
	}
	return answers.Error()
}

// Of five records it releases the first, once, rejects the second, and accepts the others.
func (franz) share(ctx context.Context, servers, topic, group string, count int) error {
	var refused error
	told := func(_ *kgo.Client, results kgo.ShareAckResults) {
		if refused == nil {
			refused = results.Error()
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(servers), kgo.ShareGroup(group), kgo.ConsumeTopics(topic),
		kgo.ShareAckCallback(told))
	if err != nil {
		return err
	}
	if err := franzPoll(ctx, client, count, func(record *kgo.Record) {
		fmt.Println(record.Partition, record.Offset, record.DeliveryCount())
		status := kgo.AckAccept
		if record.Offset%5 == 0 && record.DeliveryCount() == 1 {
			status = kgo.AckRelease
		} else if record.Offset%5 == 1 {
			status = kgo.AckReject
		}
		record.Ack(status)
	}); err != nil {
		return err
	}
	if err := client.FlushAcks(ctx); err != nil {
		return err
	}
	client.Close()
	return refused
}
