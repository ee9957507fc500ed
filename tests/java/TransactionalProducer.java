import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own transactional producer. It commits and aborts transactions in turn, each with offsets
 * of a group. At the end, a second producer fences it.
 *
 * Arguments: the bootstrap servers, the topic, the transactional id, the group, and the number of
 * transactions.
 */
public final class TransactionalProducer {
    public static void main(String[] arguments) {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[4]);
        KafkaProducer<byte[], byte[]> first = producer(arguments);
        first.initTransactions();
        for (int i = 0; i < count; i++) {
            first.beginTransaction();
            send(first, topic, i);
            first.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(i)),
                    new ConsumerGroupMetadata(arguments[3]));
            if (i % 2 == 0) {
                first.commitTransaction();
            } else {
                first.abortTransaction();
            }
        }
        first.beginTransaction();
        send(first, topic, count);
        first.flush();
        KafkaProducer<byte[], byte[]> second = producer(arguments);
        second.initTransactions();
        try {
            first.commitTransaction();
            System.out.println("committed");
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            System.out.println("fenced");
        }
        first.close();
        second.beginTransaction();
        send(second, topic, count + 1);
        second.commitTransaction();
        second.close();
    }

    private static KafkaProducer<byte[], byte[]> producer(String[] arguments) {
        Properties options = new Properties();
        options.put("bootstrap.servers", arguments[0]);
        options.put("transactional.id", arguments[2]);
        return new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int number) {
        for (int partition = 0; partition < 2; partition++) {
            byte[] value = ("" + number).getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(topic, partition, null, value));
        }
    }
}
