package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/IBM/sarama"
)

type saramaClient struct{}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func saramaMessages(topic, prefix string, count int) []*sarama.ProducerMessage {
	messages := make([]*sarama.ProducerMessage, count)
	for i := range messages {
		messages[i] = &sarama.ProducerMessage{Topic: topic, Key: sarama.ByteEncoder(key(i)), Value: sarama.ByteEncoder(value(prefix, i))}
	}
	return messages
}

func (saramaClient) produce(_ context.Context, servers, topic, codec string, count int) error {
	config := saramaConfig()
	config.Producer.Compression = saramaCodecs[codec]
	producer, err := sarama.NewSyncProducer(strings.Split(servers, ","), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return producer.SendMessages(saramaMessages(topic, "v", count))
}

type saramaHandler struct {
	count int
	seen  int
	tell  func(int32, int64, []byte, []byte)
	found chan *sarama.ConsumerMessage
	done  context.CancelFunc
}

func (*saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (handler *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			handler.found <- message
		case <-session.Context().Done():
			session.Commit()
			return nil
		}
	}
}

func (saramaClient) consume(ctx context.Context, servers, topic, group string, count int, committed bool,
	tell func(int32, int64, []byte, []byte)) error {
	config := saramaConfig()
	if committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumerGroup(strings.Split(servers, ","), group, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	inner, cancel := context.WithCancel(ctx)
	handler := &saramaHandler{count: count, tell: tell, found: make(chan *sarama.ConsumerMessage), done: cancel}
	go func() {
		for seen := 0; seen < count; seen++ {
			select {
			case message := <-handler.found:
				tell(message.Partition, message.Offset, message.Key, message.Value)
			case <-ctx.Done():
				return
			}
		}
		cancel()
	}()
	for inner.Err() == nil {
		if err := consumer.Consume(inner, []string{topic}, handler); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (saramaClient) transact(_ context.Context, servers, topic, id string, count int) error {
	config := saramaConfig()
	config.Producer.Transaction.ID = id
	producer, err := sarama.NewSyncProducer(strings.Split(servers, ","), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, part := range []struct {
		prefix string
		end    func() error
	}{{"c", producer.CommitTxn}, {"a", producer.AbortTxn}} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := producer.SendMessages(saramaMessages(topic, part.prefix, count)); err != nil {
			return err
		}
		if err := part.end(); err != nil {
			return err
		}
	}
	return nil
}

func (saramaClient) admin(_ context.Context, servers, topic string) error {
	admin, err := sarama.NewClusterAdmin(strings.Split(servers, ","), saramaConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	retention := "60000"
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return err
	}
	topics, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return err
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	if err != nil {
		return err
	}
	fmt.Println(len(topics[0].Partitions), entries[0].Value)
	return admin.DeleteTopic(topic)
}
