import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients, several in one process, which execute the commands of the standard input. Each
 * command is one line, and its result is one line, too:
 *
 * producer|consumer|admin NAME OPTION=VALUE...
 * init|begin|commit|abort NAME (a transactional producer)
 * send NAME TOPIC PARTITION COUNT SIZE (the result is the number of records that failed)
 * assign NAME TOPIC PARTITION... | subscribe NAME TOPIC | read NAME COUNT | poll NAME MS
 * offsets NAME (commits the positions, and reads them) | topics NAME (an admin) | close NAME
 */
public final class PushingClients {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, KafkaConsumer<byte[], byte[]>> consumers = new HashMap<>();
    private final Map<String, Admin> admins = new HashMap<>();

    private PushingClients() {}

    public static void main(String[] arguments) throws Exception {
        PushingClients clients = new PushingClients();
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = commands.readLine()) != null) {
            String[] words = line.split(" ");
            String result;
            try {
                result = String.valueOf(clients.execute(words[0], words[1], words));
            } catch (RuntimeException error) {
                result = "failed: " + error;
            }
            System.out.println(result.replace('\n', ' '));
            System.out.flush();
        }
        System.exit(0);
    }

    private Object execute(String command, String name, String[] words) throws Exception {
        switch (command) {
            case "producer" -> producers.put(name, new KafkaProducer<>(
                    options(words), new ByteArraySerializer(), new ByteArraySerializer()));
            case "consumer" -> consumers.put(name, new KafkaConsumer<>(
                    options(words), new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            case "admin" -> admins.put(name, Admin.create(options(words)));
            case "init" -> producers.get(name).initTransactions();
            case "begin" -> producers.get(name).beginTransaction();
            case "commit" -> producers.get(name).commitTransaction();
            case "abort" -> producers.get(name).abortTransaction();
            case "send" -> {
                return send(producers.get(name), words);
            }
            case "assign" -> consumers.get(name).assign(partitions(words));
            case "subscribe" -> consumers.get(name).subscribe(List.of(words[2]));
            case "read" -> {
                return read(consumers.get(name), Integer.parseInt(words[2]));
            }
            case "poll" -> consumers.get(name).poll(Duration.ofMillis(Long.parseLong(words[2])));
            case "offsets" -> commit(consumers.get(name));
            case "topics" -> {
                return admins.get(name).listTopics().names().get().size();
            }
            case "close" -> close(name);
            default -> throw new IllegalArgumentException("unknown command: " + command);
        }
        return "done";
    }

    private static Properties options(String[] words) {
        Properties options = new Properties();
        for (int i = 2; i < words.length; i++) {
            int at = words[i].indexOf('=');
            options.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        return options;
    }

    private static List<TopicPartition> partitions(String[] words) {
        List<TopicPartition> found = new ArrayList<>();
        for (int i = 3; i < words.length; i++) {
            found.add(new TopicPartition(words[2], Integer.parseInt(words[i])));
        }
        return found;
    }

    private static int send(KafkaProducer<byte[], byte[]> producer, String[] words)
            throws InterruptedException {
        List<Future<?>> sent = new ArrayList<>();
        byte[] value = new byte[Integer.parseInt(words[5])];
        for (int i = 0; i < Integer.parseInt(words[4]); i++) {
            sent.add(producer.send(
                    new ProducerRecord<>(words[2], Integer.parseInt(words[3]), null, value)));
        }
        producer.flush();
        int failed = 0;
        for (Future<?> each : sent) {
            try {
                each.get();
            } catch (ExecutionException error) {
                failed++;
            }
        }
        return failed;
    }

    /** Read records until `count` were read, and return their number. */
    private static int read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        Set<String> found = new HashSet<>();
        long end = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (found.size() < count && System.nanoTime() < end) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                found.add(each.topic() + "-" + each.partition() + "-" + each.offset());
            }
        }
        return found.size();
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition each : consumer.assignment()) {
            offsets.put(each, new OffsetAndMetadata(consumer.position(each)));
        }
        consumer.commitSync(offsets);
        if (!consumer.committed(offsets.keySet()).keySet().equals(offsets.keySet())) {
            throw new IllegalStateException("not all offsets were committed");
        }
    }

    private void close(String name) throws IOException {
        for (AutoCloseable each :
                new AutoCloseable[] {
                    producers.remove(name), consumers.remove(name), admins.remove(name)
                }) {
            try {
                if (each != null) {
                    each.close();
                }
            } catch (Exception error) {
                throw new IOException(error);
            }
        }
    }
}
