import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own share consumer as a member of a share group. It reads until its standard input has
 * data or ends, and reports each event as a line of JSON with the time of the machine's clock.
 *
 * The value of a record is its fate: "accept", "reject", "poison" (always released), "flaky"
 * (released the first times), or "garbage" (rejected), and after a colon how often it is released.
 *
 * Arguments: the topic, then name=NAME of the member, and the consumer's options as name=value.
 */
public final class ShareMember {
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private final KafkaShareConsumer<byte[], byte[]> consumer;
    private final String name;

    private ShareMember(Properties options) {
        name = (String) options.remove("name");
        options.put("share.acknowledgement.mode", "explicit");
        consumer = new KafkaShareConsumer<>(
                options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        Properties options = new Properties();
        for (int i = 1; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            options.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        new ShareMember(options).live(arguments[0]);
    }

    private void live(String topic) throws IOException, InterruptedException {
        try (consumer) {
            consumer.subscribe(List.of(topic));
            tell("started", "");
            while (System.in.available() == 0) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> each : records) {
                    work(each);
                }
                if (!records.isEmpty()) {
                    consumer.commitSync(Duration.ofSeconds(30));
                }
            }
        }
        tell("left", "");
    }

    private void work(ConsumerRecord<byte[], byte[]> record) throws InterruptedException {
        int count = record.deliveryCount().get();
        String place = "," + record.partition() + "," + record.offset() + "," + count;
        tell("begin", place + ",null,false");
        Thread.sleep(2);
        String[] value = new String(record.value(), StandardCharsets.UTF_8).split(":");
        AcknowledgeType type = choose(value[0], Integer.parseInt(value[1]), count);
        tell("ask", place + ",\"" + type.toString().toLowerCase(Locale.ROOT) + "\"");
        tell("end", place);
        try {
            consumer.acknowledge(record, type);
        } catch (IllegalStateException error) {
            tell("refused", place);
        }
    }

    private static AcknowledgeType choose(String fate, int failures, int count) {
        return switch (fate) {
            case "reject", "garbage" -> AcknowledgeType.REJECT;
            case "poison" -> AcknowledgeType.RELEASE;
            case "flaky" -> count <= failures ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
            default -> AcknowledgeType.ACCEPT;
        };
    }

    private void tell(String what, String data) {
        String now = String.format(Locale.ROOT, "%.9f", System.nanoTime() / 1e9);
        OUT.print("[" + now + ",\"" + what + "\",\"" + name + "\"" + data + "]\n");
        OUT.flush();
    }
}
