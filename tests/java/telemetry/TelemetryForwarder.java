import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetryContext;
import org.apache.kafka.server.telemetry.ClientTelemetryExporter;
import org.apache.kafka.server.telemetry.ClientTelemetryExporterProvider;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;

/**
 * A broker's plugin that writes the metrics that clients push into a topic of the same cluster.
 *
 * <p>Put it into {@code metric.reporters}, and set {@code telemetry.forwarder.topic} and
 * {@code telemetry.forwarder.bootstrap.servers}. The records are those of the embedded cluster's
 * TopicTelemetryReceiver, with one more header, {@code push_interval_ms}.
 */
public final class TelemetryForwarder
        implements MetricsReporter, ClientTelemetryExporterProvider, ClientTelemetryExporter {
    private static final String PREFIX = "telemetry.forwarder.";

    private String topic;
    private String servers;
    private Producer<byte[], byte[]> producer;
    private final ExecutorService sending =
            Executors.newSingleThreadExecutor(
                    task -> {
                        Thread thread = new Thread(task, "telemetry-forwarder");
                        thread.setDaemon(true);
                        return thread;
                    });

    @Override
    public void configure(Map<String, ?> configs) {
        topic = String.valueOf(configs.get(PREFIX + "topic"));
        servers = String.valueOf(configs.get(PREFIX + "bootstrap.servers"));
    }

    @Override
    public ClientTelemetryExporter clientTelemetryExporter() {
        return this;
    }

    @Override
    public void exportMetrics(ClientTelemetryContext context, ClientTelemetryPayload payload) {
        AuthorizableRequestContext request = context.authorizableRequestContext();
        ClientInformation software =
                request instanceof RequestContext
                        ? ((RequestContext) request).clientInformation
                        : ClientInformation.EMPTY;
        String instance = payload.clientInstanceId().toString();
        ByteBuffer data = payload.data().duplicate();
        ProducerRecord<byte[], byte[]> pushed =
                new ProducerRecord<>(topic, bytes(instance), Utils.toArray(data));
        Map<String, String> headers = new HashMap<>();
        headers.put("client_id", request.clientId());
        headers.put("client_instance_id", instance);
        headers.put("client_address", request.clientAddress().getHostAddress());
        headers.put("software_name", software.softwareName());
        headers.put("software_version", software.softwareVersion());
        headers.put("principal", String.valueOf(request.principal()));
        headers.put("listener", request.listenerName());
        headers.put("terminating", String.valueOf(payload.isTerminating()));
        headers.put("content_type", payload.contentType());
        headers.put("push_interval_ms", String.valueOf(context.pushIntervalMs()));
        headers.forEach((name, value) -> pushed.headers().add(name, bytes(value)));
        // The threads of the broker must not wait for metadata, which only they can send.
        sending.execute(() -> producer().send(pushed));
    }

    /** Return the producer, which is created for the first push, when the broker is running. */
    private synchronized Producer<byte[], byte[]> producer() {
        if (producer == null) {
            Map<String, Object> options = new HashMap<>();
            options.put("bootstrap.servers", servers);
            options.put("client.id", "telemetry-forwarder");
            options.put("enable.metrics.push", false);
            options.put("max.block.ms", 60_000);
            // Metrics may be as large as a record of the default size, without its key and headers.
            options.put("max.request.size", 1 << 24);
            producer =
                    new KafkaProducer<>(
                            options, new ByteArraySerializer(), new ByteArraySerializer());
        }
        return producer;
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public synchronized void close() {
        sending.shutdownNow();
        if (producer != null) {
            producer.close(java.time.Duration.ZERO);
        }
    }
}
