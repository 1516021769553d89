import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.format.Json;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;

/**
 * Debezium's embedded engine into Kafka, from a place in the binlog: JSON without schemas, an idempotent producer, and
 * a flush before each batch is marked as processed. Prints one JSON object: rows, seconds and processor seconds from
 * the start of the engine to the flush behind the last row.
 *
 * Arguments: mariadb or mysql, the database's port, user, password, schema.table, journal, offset, Kafka's address, rows,
 * and on MariaDB the GTIDs before the place.
 */
public final class ToKafka {
    private static final CountDownLatch ended = new CountDownLatch(1);
    private static String journal;
    private static String offset;
    private static String gtids;
    private static long wanted;
    private static long rows;
    private static KafkaProducer<byte[], byte[]> producer;

    public static void main(String[] arguments) throws Exception {
        Engine.quiet();
        journal = arguments[5];
        offset = arguments[6];
        wanted = Long.parseLong(arguments[8]);
        gtids = arguments.length > 9 ? ",\"gtids\":\"" + arguments[9] + "\"" : "";
        producer =
            new KafkaProducer<>(producerSettings(arguments[7]), new ByteArraySerializer(), new ByteArraySerializer());
        DebeziumEngine<ChangeEvent<String, String>> engine =
            DebeziumEngine.create(Json.class)
                .using(settings(arguments))
                .using(Engine::failed)
                .notifying(ToKafka::send)
                .build();
        long began = System.nanoTime();
        double cpuBefore = Engine.cpu();
        Engine.start(engine);
        ended.await();
        Engine.end(rows, began, cpuBefore);
    }

    /** Offsets in memory that begin at the place. */
    public static final class FromPlace extends MemoryOffsetBackingStore {
        @Override
        public void configure(WorkerConfig config) {
            super.configure(config);
            data.put(bytes("[\"bench\",{\"server\":\"bench\"}]"),
                bytes("{\"file\":\"" + journal + "\",\"pos\":" + offset + gtids + ",\"row\":0,\"event\":0}"));
        }

        @Override
        public Set<Map<String, Object>> connectorPartitions(String connector) {
            return Set.of(Map.of("server", "bench"));
        }

        private static ByteBuffer bytes(String text) {
            return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
        }
    }

    private static Properties producerSettings(String servers) {
        Properties settings = new Properties();
        settings.setProperty("bootstrap.servers", servers);
        settings.setProperty("linger.ms", "5");
        settings.setProperty("batch.size", "1000000");
        settings.setProperty("buffer.memory", "134217728");
        return settings;
    }

    private static Properties settings(String[] arguments) {
        Properties settings = Engine.settings(arguments, "4006");
        settings.setProperty("offset.storage", FromPlace.class.getName());
        settings.setProperty("offset.flush.interval.ms", "1000");
        settings.setProperty("snapshot.mode", "recovery"); // the table's columns are read from the database
        settings.setProperty("key.converter.schemas.enable", "false");
        settings.setProperty("value.converter.schemas.enable", "false");
        settings.setProperty("converter.schemas.enable", "false");
        return settings;
    }

    private static void send(
        List<ChangeEvent<String, String>> batch, RecordCommitter<ChangeEvent<String, String>> committer
    ) throws InterruptedException {
        for (ChangeEvent<String, String> event : batch) {
            if (event.value() != null) {
                producer.send(new ProducerRecord<>(event.destination(), bytes(event.key()), bytes(event.value())));
                rows++;
            }
        }
        producer.flush();
        for (ChangeEvent<String, String> event : batch) {
            committer.markProcessed(event);
        }
        committer.markBatchFinished();
        if (rows >= wanted) {
            ended.countDown();
        }
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
