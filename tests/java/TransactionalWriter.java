import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own transactional producer, which executes the commands of its standard input, one in each
 * line, and prints each line when it is done:
 *
 * begin | send TOPIC PARTITION VALUE | flush | offset GROUP TOPIC PARTITION OFFSET | commit | abort
 *
 * Arguments: the producer's options as name=value.
 */
public final class TransactionalWriter {
    private TransactionalWriter() {}

    public static void main(String[] arguments) throws IOException {
        Properties options = new Properties();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            options.put(argument.substring(0, at), argument.substring(at + 1));
        }
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringSerializer serializer = new StringSerializer();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(options, serializer, serializer)) {
            producer.initTransactions();
            String line;
            while ((line = commands.readLine()) != null) {
                execute(producer, line.split(" "));
                System.out.println(line);
                System.out.flush();
            }
        }
    }

    private static void execute(KafkaProducer<String, String> producer, String[] command) {
        switch (command[0]) {
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(
                    new ProducerRecord<>(command[1], Integer.parseInt(command[2]), null, command[3]));
            case "flush" -> producer.flush();
            case "offset" -> producer.sendOffsetsToTransaction(
                    Map.of(
                            new TopicPartition(command[2], Integer.parseInt(command[3])),
                            new OffsetAndMetadata(Long.parseLong(command[4]))),
                    new ConsumerGroupMetadata(command[1]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException("unknown command: " + command[0]);
        }
    }
}
