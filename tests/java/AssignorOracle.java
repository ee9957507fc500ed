import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors, in a process that answers one question after another.
 *
 * Each question and each answer is one line of JSON. Bytes are hexadecimal, partitions are pairs.
 */
public final class AssignorOracle {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String line;
        while ((line = in.readLine()) != null) {
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                answer(MAPPER.readTree(line), answer);
            } catch (Exception error) {
                answer = MAPPER.createObjectNode().put("error", error.toString());
            }
            out.print(MAPPER.writeValueAsString(answer) + "\n");
            out.flush();
        }
    }

    private static void answer(JsonNode question, ObjectNode answer) {
        switch (question.get("ask").textValue()) {
            case "assign": assign(question, answer); break;
            case "user data": userData(question, answer); break;
            case "write subscription":
                hex(answer, "bytes", ConsumerProtocol.serializeSubscription(
                    subscription(question), (short) question.get("version").intValue()));
                break;
            case "read subscription":
                put(answer, ConsumerProtocol.deserializeSubscription(bytes(question.get("bytes"))));
                break;
            case "write assignment":
                hex(answer, "bytes", ConsumerProtocol.serializeAssignment(
                    new Assignment(partitions(question.get("partitions")), bytes(question.get("user_data")))));
                break;
            case "read assignment":
                put(answer, ConsumerProtocol.deserializeAssignment(bytes(question.get("bytes"))));
                break;
            default: throw new IllegalArgumentException(question.toString());
        }
    }

    private static ConsumerPartitionAssignor assignor(JsonNode question) {
        switch (question.get("strategy").textValue()) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(question.toString());
        }
    }

    private static void assign(JsonNode question, ObjectNode answer) {
        Map<String, Subscription> members = new HashMap<>();
        question.get("members").fields().forEachRemaining(
            entry -> members.put(entry.getKey(), subscription(entry.getValue())));
        Map<String, Assignment> given = assignor(question)
            .assign(cluster(question.get("topics")), new GroupSubscription(members))
            .groupAssignment();
        given.forEach((member, assignment) -> put(answer.putObject(member), assignment));
    }

    /** Returns the cluster of these topics. Each rack has one broker, and one broker has no rack. */
    private static Cluster cluster(JsonNode topics) {
        Map<String, Node> nodes = new HashMap<>();
        Node nowhere = new Node(0, "none", 1);
        List<PartitionInfo> infos = new ArrayList<>();
        topics.fields().forEachRemaining(topic -> {
            int index = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks)
                    replicas.add(nodes.computeIfAbsent(
                        rack.textValue(), name -> new Node(nodes.size() + 1, name, 1, name)));
                if (replicas.isEmpty())
                    replicas.add(nowhere);
                Node[] all = replicas.toArray(new Node[0]);
                infos.add(new PartitionInfo(topic.getKey(), index++, all[0], all, all));
            }
        });
        List<Node> known = new ArrayList<>(nodes.values());
        known.add(nowhere);
        return new Cluster("cluster", known, infos, Set.of(), Set.of());
    }

    private static Subscription subscription(JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.textValue()));
        Subscription subscription = new Subscription(
            topics,
            bytes(member.get("user_data")),
            partitions(member.get("owned")),
            member.get("generation_id").intValue(),
            Optional.ofNullable(member.get("rack").textValue()));
        subscription.setGroupInstanceId(Optional.ofNullable(member.get("instance_id").textValue()));
        return subscription;
    }

    private static void userData(JsonNode question, ObjectNode answer) {
        ConsumerPartitionAssignor assignor = assignor(question);
        int generation = question.get("generation").intValue();
        assignor.onAssignment(
            new Assignment(partitions(question.get("partitions"))),
            new ConsumerGroupMetadata("group", generation, "member", Optional.empty()));
        hex(answer, "bytes", assignor.subscriptionUserData(Set.of()));
    }

    private static List<TopicPartition> partitions(JsonNode pairs) {
        List<TopicPartition> partitions = new ArrayList<>();
        pairs.forEach(pair -> partitions.add(
            new TopicPartition(pair.get(0).textValue(), pair.get(1).intValue())));
        return partitions;
    }

    private static void put(ObjectNode answer, List<TopicPartition> partitions, String name) {
        ArrayNode pairs = answer.putArray(name);
        partitions.forEach(one -> pairs.addArray().add(one.topic()).add(one.partition()));
    }

    private static void put(ObjectNode answer, Assignment assignment) {
        put(answer, assignment.partitions(), "partitions");
        hex(answer, "user_data", assignment.userData());
    }

    private static void put(ObjectNode answer, Subscription subscription) {
        ArrayNode topics = answer.putArray("topics");
        subscription.topics().forEach(topics::add);
        put(answer, subscription.ownedPartitions(), "owned");
        hex(answer, "user_data", subscription.userData());
        answer.put("generation_id", subscription.generationId().orElse(-1));
        answer.put("rack", subscription.rackId().orElse(null));
    }

    private static ByteBuffer bytes(JsonNode hex) {
        return hex.isNull() ? null : ByteBuffer.wrap(HexFormat.of().parseHex(hex.textValue()));
    }

    private static void hex(ObjectNode answer, String name, ByteBuffer bytes) {
        if (bytes == null) {
            answer.putNull(name);
            return;
        }
        byte[] content = new byte[bytes.remaining()];
        bytes.duplicate().get(content);
        answer.put(name, HexFormat.of().formatHex(content));
    }
}
