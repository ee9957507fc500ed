import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer as a member of a group. It reads until its standard input has data or ends,
 * and reports each event as a line of JSON with the time of the machine's clock.
 *
 * Arguments: the topic, then the consumer's options as name=value.
 */
public final class GroupMember implements ConsumerRebalanceListener {
    private static final PrintStream OUT =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    private final KafkaConsumer<byte[], byte[]> consumer;

    private GroupMember(Properties options) {
        consumer = new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws IOException {
        Properties options = new Properties();
        options.put("auto.offset.reset", "earliest");
        options.put("auto.commit.interval.ms", "100");
        for (int i = 1; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            options.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        new GroupMember(options).live(arguments[0]);
    }

    private void live(String topic) throws IOException {
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            tell("\"started\"");
            while (System.in.available() == 0) {
                String asked = now();
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(50));
                if (!records.isEmpty()) {
                    work(asked, records);
                }
            }
        }
        tell("\"left\"");
    }

    /** Reports records as delivered and as processed. The next poll commits them. */
    private static void work(String asked, ConsumerRecords<byte[], byte[]> records) {
        StringBuilder offsets = new StringBuilder();
        for (ConsumerRecord<byte[], byte[]> each : records) {
            offsets.append(offsets.length() == 0 ? "" : ",");
            offsets.append('[').append(each.partition()).append(',').append(each.offset()).append(']');
        }
        tell("\"delivered\"," + asked + ",[" + offsets + "]");
        for (ConsumerRecord<byte[], byte[]> each : records) {
            tell("\"done\"," + each.partition() + "," + each.offset());
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> given) {
        tell("\"assigned\"," + numbers(given) + "," + consumer.groupMetadata().generationId());
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> gone) {
        tell("\"revoked\"," + numbers(gone));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> gone) {
        tell("\"lost\"," + numbers(gone));
    }

    private static String numbers(Collection<TopicPartition> some) {
        return some.stream().map(each -> "" + each.partition()).collect(Collectors.joining(",", "[", "]"));
    }

    /** Returns the time of the clock that all processes of the machine share. */
    private static String now() {
        return String.format(Locale.ROOT, "%.9f", System.nanoTime() / 1e9);
    }

    private static void tell(String what) {
        OUT.print("[" + now() + "," + what + "]\n");
        OUT.flush();
    }
}
