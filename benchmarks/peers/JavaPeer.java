import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Produces or consumes with Kafka's own client, as told by name=value arguments; see measuring/spec.py. */
public final class JavaPeer {
    private static final OperatingSystemMXBean SYSTEM =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final Map<String, String> spec = new HashMap<>();
    private boolean silent;
    private long messages, bytes, atOnce, cpu, wall, ended;

    private void begin() {
        System.gc();
        say("begin");
        ended = 0;
        wall = System.nanoTime();
        cpu = SYSTEM.getProcessCpuTime();
    }

    private void end() {
        cpu = SYSTEM.getProcessCpuTime() - cpu;
        wall = (ended == 0 ? System.nanoTime() : ended) - wall;
        say("end");
    }

    private void say(String line) {
        if (!silent) System.out.println(line);
    }

    private int number(String name) {
        return Integer.parseInt(spec.get(name));
    }

    private List<byte[]> values() throws Exception {
        byte[] data = Files.readAllBytes(Path.of(spec.get("payloads")));
        int size = number("size");
        List<byte[]> pool = new ArrayList<>();
        for (int at = 0; at < data.length; at += size) pool.add(Arrays.copyOfRange(data, at, at + size));
        return pool;
    }

    private void produce(String topic, int count) throws Exception {
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("compression.type", spec.get("compression"));
        if (spec.get("tuned").equals("true")) {
            options.put("batch.size", spec.get("batch_bytes"));
            options.put("linger.ms", spec.get("linger_ms"));
            options.put("max.in.flight.requests.per.connection", spec.get("in_flight"));
        }
        List<byte[]> pool = values();
        List<byte[]> keys = new ArrayList<>();
        if (spec.get("keyed").equals("true"))
            for (int n = 0; n < 10_000; n++) keys.add(String.format("customer-%07d", n).getBytes());
        AtomicLong good = new AtomicLong();
        try (var producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(topic, "first".getBytes())).get();
            begin();
            for (int n = 0; n < count; n++) {
                byte[] key = keys.isEmpty() ? null : keys.get(n % keys.size());
                producer.send(new ProducerRecord<>(topic, key, pool.get(n % pool.size())), (metadata, error) -> {
                    if (error != null) throw new IllegalStateException(error);
                    good.incrementAndGet();
                });
            }
            producer.flush();
            end();
        }
        messages = good.get();
    }

    private void consume(String topic, int count) {
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("enable.auto.commit", "false");
        if (spec.get("tuned").equals("true")) options.put("max.poll.records", "5000");
        List<TopicPartition> places = new ArrayList<>();
        for (int p = 0; p < number("partitions"); p++) places.add(new TopicPartition(topic, p));
        messages = bytes = atOnce = 0;
        begin();
        try (var consumer = new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            while (messages < count) {
                var records = consumer.poll(Duration.ofSeconds(1));
                if (messages == 0) {
                    atOnce = records.count();
                    wall = System.nanoTime();
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    bytes += record.value().length;
                    messages++;
                }
            }
            ended = System.nanoTime();
        }
        end();
    }

    /** Each poll accepts the records of the one before. */
    private void share(String topic, int count) {
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("group.id", spec.get("group"));
        options.put("max.poll.records", spec.get("records"));
        messages = bytes = atOnce = 0;
        begin();
        try (var consumer = new KafkaShareConsumer<>(
                options, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (messages < count) {
                var records = consumer.poll(Duration.ofSeconds(1));
                if (messages == 0) {
                    atOnce = records.count();
                    wall = System.nanoTime();
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    bytes += record.value().length;
                    messages++;
                }
            }
            ended = System.nanoTime();
            consumer.commitSync();
        }
        end();
    }

    private Properties transactional(String id) {
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("batch.size", spec.get("batch_bytes"));
        options.put("linger.ms", spec.get("linger_ms"));
        options.put("max.in.flight.requests.per.connection", spec.get("in_flight"));
        options.put("transactional.id", id);
        return options;
    }

    private void transactions(String topic, int count) throws Exception {
        int records = number("records"), n = 0;
        List<byte[]> pool = values();
        messages = 0;
        try (var producer = new KafkaProducer<>(
                transactional(topic), new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            begin();
            for (; messages < count; messages++) {
                producer.beginTransaction();
                for (int end = n + records; n < end; n++)
                    producer.send(new ProducerRecord<>(topic, pool.get(n % pool.size())));
                producer.commitTransaction();
            }
            end();
        }
    }

    /** The warm-up writes to its input, of which the end is not read, so that the output has only the run. */
    private String output(String topic) {
        return topic.equals(spec.get("warm_topic")) ? topic : spec.get("output");
    }

    private void transform(String topic, int count) {
        int records = number("records");
        Properties options = new Properties();
        options.put("bootstrap.servers", spec.get("bootstrap"));
        options.put("group.id", topic);
        options.put("enable.auto.commit", "false");
        options.put("auto.offset.reset", "earliest");
        options.put("max.poll.records", records);
        options.put("isolation.level", "read_committed");
        messages = 0;
        try (var producer = new KafkaProducer<>(
                transactional(topic), new ByteArraySerializer(), new ByteArraySerializer());
             var consumer = new KafkaConsumer<>(
                options, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            // A poll may return fewer records than a transaction has, also at the end of a fetch.
            var left = new ArrayDeque<ConsumerRecord<byte[], byte[]>>();
            consumer.poll(Duration.ofSeconds(30)).forEach(left::add);
            begin();
            for (; messages < count; messages++) {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (int done = 0; done < records; done++) {
                    while (left.isEmpty()) consumer.poll(Duration.ofSeconds(30)).forEach(left::add);
                    ConsumerRecord<byte[], byte[]> record = left.remove();
                    producer.send(new ProducerRecord<>(output(topic), record.value()));
                    offsets.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1, record.leaderEpoch(), ""));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
            }
            end();
        }
    }

    private void work(String topic, int count) throws Exception {
        switch (spec.get("mode")) {
            case "consume" -> consume(topic, count);
            case "share" -> share(topic, count);
            case "transactions" -> transactions(topic, count);
            case "transform" -> transform(topic, count);
            default -> produce(topic, count);
        }
    }

    public static void main(String[] arguments) throws Exception {
        JavaPeer peer = new JavaPeer();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            peer.spec.put(argument.substring(0, at), argument.substring(at + 1));
        }
        if (peer.number("warm_count") > 0) {
            peer.silent = true;
            peer.work(peer.spec.get("warm_topic"), peer.number("warm_count"));
            peer.silent = false;
        }
        peer.work(peer.spec.get("topic"), peer.number("count"));
        System.out.printf("{\"messages\": %d, \"bytes\": %d, \"cpu_s\": %f, \"wall_s\": %f, \"at_once\": %d}%n",
            peer.messages, peer.bytes, peer.cpu / 1e9, peer.wall / 1e9, peer.atOnce);
    }
}
