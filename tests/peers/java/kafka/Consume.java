import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints, as JSON lines, what Kafka's own consumer is given: every record from the beginning of the topics named to the
 * end that the broker states for the isolation level.
 *
 * <p>Arguments: bootstrap servers, isolation level, seconds to wait at most, name=value consumer settings joined by
 * line feeds, topics or topic-partitions ("topic" or "topic:partition")... One line a record, and before those one a
 * partition with its beginning and its end.
 */
public final class Consume {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("isolation.level", arguments[1]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("allow.auto.create.topics", "false");
        long deadline = System.nanoTime() + Duration.ofSeconds(Long.parseLong(arguments[2])).toNanos();
        for (String setting : arguments[3].split("\n")) {
            if (!setting.isEmpty()) {
                String[] parts = setting.split("=", 2);
                settings.put(parts[0], parts[1]);
            }
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            List<TopicPartition> partitions = partitions(consumer, Arrays.asList(arguments).subList(4, arguments.length));
            Map<TopicPartition, Long> beginnings = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            for (TopicPartition partition : partitions) {
                ObjectNode line = JSON.createObjectNode();
                line.put("topic", partition.topic()).put("partition", partition.partition());
                line.put("logStartOffset", beginnings.get(partition)).put("highWatermark", ends.get(partition));
                System.out.println(JSON.writeValueAsString(line));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (!reached(consumer, partitions, ends)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not at the end in time: " + positions(consumer, partitions) + " of " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    if (record.offset() < ends.get(new TopicPartition(record.topic(), record.partition()))) {
                        System.out.println(JSON.writeValueAsString(line(record)));
                    }
                }
            }
        }
    }

    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, List<String> names) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String name : names) {
            int colon = name.indexOf(':');
            if (colon >= 0) {
                partitions.add(new TopicPartition(name.substring(0, colon), Integer.parseInt(name.substring(colon + 1))));
                continue;
            }
            List<PartitionInfo> found = consumer.partitionsFor(name);
            if (found == null || found.isEmpty()) {
                throw new IllegalArgumentException("no topic " + name);
            }
            found.stream().map(PartitionInfo::partition).sorted().forEach(
                number -> partitions.add(new TopicPartition(name, number)));
        }
        return partitions;
    }

    private static boolean reached(
            KafkaConsumer<byte[], byte[]> consumer, Collection<TopicPartition> partitions, Map<TopicPartition, Long> ends) {
        return partitions.stream().allMatch(partition -> consumer.position(partition) >= ends.get(partition));
    }

    private static List<Long> positions(KafkaConsumer<byte[], byte[]> consumer, Collection<TopicPartition> partitions) {
        return partitions.stream().map(consumer::position).toList();
    }

    private static ObjectNode line(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode();
        line.put("topic", record.topic()).put("partition", record.partition()).put("offset", record.offset());
        line.put("timestampType", record.timestampType().toString());
        line.put("timestamp", record.timestamp());
        line.put("key", base64(record.key())).put("value", base64(record.value()));
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(base64(header.value()));
        }
        return line;
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
