import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Lets Kafka's own assignors assign the partitions of groups: one JSON object a line on standard input, and one with the
 * answer on standard output.
 */
public final class Assign {
    private static final ObjectMapper JSON = new ObjectMapper();

    private record Counts(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid topicId) {
            return counts.getOrDefault(topicId, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid topicId, int partition) {
            return Set.of();
        }
    }

    private static Map<Uuid, Set<Integer>> partitions(JsonNode node) {
        Map<Uuid, Set<Integer>> found = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> fields = node.fields(); fields.hasNext(); ) {
            Map.Entry<String, JsonNode> field = fields.next();
            List<Integer> numbers = new ArrayList<>();
            field.getValue().forEach(number -> numbers.add(number.asInt()));
            found.put(Uuid.fromString(field.getKey()), new HashSet<>(numbers));
        }
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            Map<Uuid, Integer> counts = new HashMap<>();
            asked.get("counts").fields().forEachRemaining(one -> counts.put(Uuid.fromString(one.getKey()), one.getValue().asInt()));
            Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
            Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
            asked.get("members").fields().forEachRemaining(one -> {
                JsonNode member = one.getValue();
                List<Uuid> topics = new ArrayList<>();
                member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
                Map<Uuid, Set<Integer>> target = partitions(member.get("target"));
                target.forEach((topic, numbers) -> numbers.forEach(number ->
                    inverted.computeIfAbsent(topic, key -> new HashMap<>()).put(number, one.getKey())));
                JsonNode instance = member.get("instance");
                members.put(one.getKey(), new MemberSubscriptionAndAssignmentImpl(
                    Optional.empty(),
                    instance.isNull() ? Optional.empty() : Optional.of(instance.asText()),
                    new HashSet<>(topics),
                    new Assignment(target)));
            });
            PartitionAssignor assignor = switch (asked.get("assignor").asText()) {
                case "range" -> new RangeAssignor();
                case "simple" -> new SimpleAssignor();
                default -> new UniformAssignor();
            };
            JsonNode assignable = asked.get("assignable");
            SubscriptionType type =
                asked.get("same").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
            GroupAssignment assigned = assignor.assign(
                new GroupSpecImpl(Collections.unmodifiableMap(members), type, inverted,
                    assignable == null ? Optional.empty() : Optional.of(partitions(assignable))),
                new Counts(counts));
            ObjectNode answer = JSON.createObjectNode();
            for (Map.Entry<String, MemberAssignment> one : assigned.members().entrySet()) {
                ObjectNode topics = answer.putObject(one.getKey());
                one.getValue().partitions().forEach((topic, numbers) -> {
                    ArrayNode found = topics.putArray(topic.toString());
                    new TreeSet<>(numbers).forEach(found::add);
                });
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }
}
