import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.Utils;

/**
 * Kafka's own record code, in a process that answers one question after another.
 *
 * A question is a 32-bit length, a letter, and its arguments. An answer is a length, and a zero
 * with the result or a one with the text of the error. Numbers are big endian. Null has length -1.
 */
public class RecordOracle {
    private static final int DEFAULT_LEVEL = Integer.MIN_VALUE;

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        DataOutputStream out = new DataOutputStream(System.out);
        while (true) {
            byte[] question;
            try {
                question = in.readNBytes(in.readInt());
            } catch (EOFException end) {
                return;
            }
            byte[] answer = answer(question);
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    private static byte[] answer(byte[] question) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        try {
            DataInputStream in = new DataInputStream(new ByteArrayInputStream(question));
            byte letter = in.readByte();
            out.writeByte(0);
            switch (letter) {
                case 'W': write(in, out); break;
                case 'R': read(in, out); break;
                case 'E': endTransaction(in, out); break;
                case 'M': out.writeInt(Utils.murmur2(in.readAllBytes())); break;
                default: throw new IllegalArgumentException("no such question: " + letter);
            }
            return bytes.toByteArray();
        } catch (Exception | StackOverflowError error) {
            bytes.reset();
            bytes.write(1);
            bytes.write(error.toString().getBytes(StandardCharsets.UTF_8));
            return bytes.toByteArray();
        }
    }

    /** Writes a batch: its header's fields, then its records. */
    private static void write(DataInputStream in, DataOutputStream out) throws IOException {
        byte magic = in.readByte();
        Compression compression = compression(in.readByte(), in.readInt());
        TimestampType type = TimestampType.forName(in.readBoolean() ? "LogAppendTime" : "CreateTime");
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1024), magic, compression, type, in.readLong(), in.readLong(),
            in.readLong(), in.readShort(), in.readInt(), in.readBoolean(), in.readInt());
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            long timestamp = in.readLong();
            byte[] key = nullable(in);
            byte[] value = nullable(in);
            Header[] headers = new Header[in.readInt()];
            for (int j = 0; j < headers.length; j++)
                headers[j] = new RecordHeader(new String(nullable(in), StandardCharsets.UTF_8), nullable(in));
            if (magic < 2)
                builder.append(timestamp, key, value);
            else
                builder.append(timestamp, key, value, headers);
        }
        out.write(Utils.toArray(builder.build().buffer()));
    }

    private static Compression compression(int codec, int level) {
        switch (codec) {
            case 0: return Compression.NONE;
            case 1: return level == DEFAULT_LEVEL ? Compression.gzip().build() : Compression.gzip().level(level).build();
            case 2: return Compression.snappy().build();
            case 3: return level == DEFAULT_LEVEL ? Compression.lz4().build() : Compression.lz4().level(level).build();
            case 4: return level == DEFAULT_LEVEL ? Compression.zstd().build() : Compression.zstd().level(level).build();
            default: throw new IllegalArgumentException("no such codec: " + codec);
        }
    }

    /** Reads batches: a one precedes each batch and each record, and a zero ends a list of them. */
    private static void read(DataInputStream in, DataOutputStream out) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(in.readAllBytes()));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            out.writeByte(1);
            out.writeByte(batch.magic());
            out.writeByte(batch.compressionType().id);
            out.writeBoolean(batch.timestampType() == TimestampType.LOG_APPEND_TIME);
            out.writeLong(batch.baseOffset());
            out.writeLong(batch.lastOffset());
            out.writeLong(batch.maxTimestamp());
            out.writeLong(batch.producerId());
            out.writeShort(batch.producerEpoch());
            out.writeInt(batch.baseSequence());
            out.writeInt(batch.lastSequence());
            out.writeBoolean(batch.isTransactional());
            out.writeBoolean(batch.isControlBatch());
            out.writeInt(batch.partitionLeaderEpoch());
            out.writeInt(batch.countOrNull() == null ? -1 : batch.countOrNull());
            for (Record record : batch) {
                record.ensureValid();
                out.writeByte(1);
                readRecord(record, out);
            }
            out.writeByte(0);
        }
        out.writeByte(0);
    }

    private static void readRecord(Record record, DataOutputStream out) throws IOException {
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        nullable(out, record.hasKey() ? Utils.toArray(record.key()) : null);
        nullable(out, record.hasValue() ? Utils.toArray(record.value()) : null);
        out.writeInt(record.headers().length);
        for (Header header : record.headers()) {
            nullable(out, header.key().getBytes(StandardCharsets.UTF_8));
            nullable(out, header.value());
        }
    }

    private static void endTransaction(DataInputStream in, DataOutputStream out) throws IOException {
        ControlRecordType type = in.readBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        long offset = in.readLong();
        long timestamp = in.readLong();
        int leaderEpoch = in.readInt();
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        EndTransactionMarker marker = new EndTransactionMarker(type, in.readInt());
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(
            offset, timestamp, leaderEpoch, producerId, producerEpoch, marker);
        out.write(Utils.toArray(records.buffer()));
    }

    private static byte[] nullable(DataInputStream in) throws IOException {
        int length = in.readInt();
        return length < 0 ? null : in.readNBytes(length);
    }

    private static void nullable(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null)
            out.write(bytes);
    }
}
