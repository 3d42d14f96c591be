package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

type segment struct{}

var segmentCodecs = map[string]kafka.Compression{
	"none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func (segment) produce(ctx context.Context, servers, topic, codec string, count int) error {
	writer := &kafka.Writer{Addr: kafka.TCP(servers), Topic: topic, Compression: segmentCodecs[codec],
		RequiredAcks: kafka.RequireAll, AllowAutoTopicCreation: true, BatchTimeout: 10 * time.Millisecond}
	defer writer.Close()
	messages := make([]kafka.Message, count)
	for i := range messages {
		messages[i] = kafka.Message{Key: key(i), Value: value("v", i)}
	}
	return writer.WriteMessages(ctx, messages...)
}

func (segment) consume(ctx context.Context, servers, topic, group string, count int, committed bool,
	tell func(int32, int64, []byte, []byte)) error {
	level := kafka.ReadUncommitted
	if committed {
		level = kafka.ReadCommitted
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{servers}, GroupID: group, Topic: topic,
		IsolationLevel: level, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond})
	defer reader.Close()
	for seen := 0; seen < count; seen++ {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		tell(int32(message.Partition), message.Offset, message.Key, message.Value)
		if err := reader.CommitMessages(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

func (segment) transact(context.Context, string, string, string, int) error {
	return errors.New("kafka-go has no transactions")
}

func (segment) admin(ctx context.Context, servers, topic string) error {
	client := &kafka.Client{Addr: kafka.TCP(servers), Timeout: 20 * time.Second}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic,
		NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "60000"}}}}})
	if err != nil {
		return err
	}
	if made.Errors[topic] != nil {
		return made.Errors[topic]
	}
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{
		{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}}})
	if err != nil {
		return err
	}
	fmt.Println(len(found.Topics[0].Partitions), configs.Resources[0].ConfigEntries[0].ConfigValue)
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}
