// Does the same with three Go clients, for the tests of the broker:
//
//	clients LIBRARY produce SERVERS TOPIC CODEC COUNT        keys k0.., values v0..
//	clients LIBRARY consume SERVERS TOPIC GROUP COUNT LEVEL  prints "partition offset key value", commits, leaves
//	clients LIBRARY transact SERVERS TOPIC ID COUNT          a committed transaction (c0..), then an aborted one (a0..)
//	clients LIBRARY admin SERVERS TOPIC                      creates, describes and deletes a topic
//	clients franz-go share SERVERS TOPIC GROUP COUNT         prints "partition offset delivery-count" until COUNT deliveries, acknowledges, leaves
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type library interface {
	produce(ctx context.Context, servers, topic, codec string, count int) error
	consume(ctx context.Context, servers, topic, group string, count int, committed bool, tell func(int32, int64, []byte, []byte)) error
	transact(ctx context.Context, servers, topic, id string, count int) error
	admin(ctx context.Context, servers, topic string) error
}

var libraries = map[string]library{
	"franz-go": franz{}, "sarama": saramaClient{}, "kafka-go": segment{},
	// Its groups are those of KIP-848.
	"franz-go-848": franz{[]kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}},
}

func key(number int) []byte { return []byte(fmt.Sprintf("k%d", number)) }

func value(prefix string, number int) []byte { return []byte(fmt.Sprintf("%s%d", prefix, number)) }

func number(text string) int {
	parsed, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return parsed
}

func tell(partition int32, offset int64, key, value []byte) {
	fmt.Printf("%d %d %s %s\n", partition, offset, key, value)
}

func run(arguments []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	client, servers, topic := libraries[arguments[0]], arguments[2], arguments[3]
	switch arguments[1] {
	case "produce":
		return client.produce(ctx, servers, topic, arguments[4], number(arguments[5]))
	case "consume":
		return client.consume(ctx, servers, topic, arguments[4], number(arguments[5]), arguments[6] == "read_committed", tell)
	case "transact":
		return client.transact(ctx, servers, topic, arguments[4], number(arguments[5]))
	case "admin":
		return client.admin(ctx, servers, topic)
	case "share":
		return franz{}.share(ctx, servers, topic, arguments[4], number(arguments[5]))
	}
	return fmt.Errorf("no such command: %s", arguments[1])
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
