import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Encodes messages with Kafka's own code, for tests that compare bytes.
 *
 * A question on stdin: name of the class (short length, UTF-8), version (short), kind (byte),
 * and, each with its length as an int, either one JSON array of messages (kind 'J') or, after
 * their count, encoded messages to be read and written again (kind 'B'). An answer on stdout:
 * 0, the count and the encoded messages, each with its length; or 1 and the text of the error.
 */
public final class WireOracle {
    private static final String PACKAGE = "org.apache.kafka.common.message.";
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Map<String, Method> CONVERTERS = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException end) {
                return;
            }
            short version = in.readShort();
            answer(in.readByte(), name, version, in, out);
            if (in.available() == 0) {
                out.flush();
            }
        }
    }

    private static void answer(
            byte kind, String name, short version, DataInputStream in, DataOutputStream out)
            throws IOException {
        List<byte[]> questions = new ArrayList<>();
        int count = kind == 'J' ? 1 : in.readInt();
        for (int i = 0; i < count; i++) {
            questions.add(in.readNBytes(in.readInt()));
        }
        try {
            List<byte[]> answers = kind == 'J'
                ? fromJson(name, version, questions.get(0))
                : again(name, version, questions);
            out.writeByte(0);
            out.writeInt(answers.size());
            for (byte[] bytes : answers) {
                out.writeInt(bytes.length);
                out.write(bytes);
            }
        } catch (Exception error) {
            StringWriter text = new StringWriter();
            error.printStackTrace(new PrintWriter(text));
            byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
            out.writeByte(1);
            out.writeInt(bytes.length);
            out.write(bytes);
        }
    }

    private static List<byte[]> fromJson(String name, short version, byte[] json) throws Exception {
        Method read = CONVERTERS.get(name);
        if (read == null) {
            Class<?> converter = Class.forName(PACKAGE + name + "JsonConverter");
            read = converter.getMethod("read", JsonNode.class, short.class);
            CONVERTERS.put(name, read);
        }
        List<byte[]> answers = new ArrayList<>();
        for (JsonNode node : MAPPER.readTree(json)) {
            answers.add(write((Message) read.invoke(null, node, version), version));
        }
        return answers;
    }

    private static List<byte[]> again(String name, short version, List<byte[]> questions)
            throws Exception {
        Class<?> type = Class.forName(PACKAGE + name);
        List<byte[]> answers = new ArrayList<>();
        for (byte[] bytes : questions) {
            Message message = (Message) type.getDeclaredConstructor().newInstance();
            ByteBufferAccessor accessor = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
            message.read(accessor, version);
            if (accessor.remaining() != 0) {
                throw new IllegalStateException(accessor.remaining() + " bytes left over");
            }
            answers.add(write(message, version));
        }
        return answers;
    }

    private static byte[] write(Message message, short version) {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
