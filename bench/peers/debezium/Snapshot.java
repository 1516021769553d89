import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * The initial snapshot of one table with Debezium's embedded engine, without Kafka: counts the records, which are not
 * serialized, until the one that Debezium marks as the snapshot's last. Prints one JSON object: rows, seconds and
 * processor seconds from Debezium's log line "Snapshot step 7", where it begins to read rows, to the last row.
 *
 * Arguments: mariadb or mysql, the database's port, user, password, schema.table, threads.
 */
public final class Snapshot {
    private static final String READS_ROWS = "Snapshot step 7";
    private static final Logger LOG = Logger.getLogger("io.debezium"); // a field, because loggers are weakly referenced
    private static final CountDownLatch ended = new CountDownLatch(1);
    private static volatile long began;
    private static volatile double cpuBefore;
    private static long rows;

    public static void main(String[] arguments) throws Exception {
        Engine.quiet();
        LOG.addHandler(new Start());
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
            DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(settings(arguments))
                .using(Engine::failed)
                .notifying(Snapshot::count)
                .build();
        Engine.start(engine);
        ended.await();
        Engine.end(rows, began, cpuBefore);
    }

    private static Properties settings(String[] arguments) {
        Properties settings = Engine.settings(arguments, "4005");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        settings.setProperty("snapshot.mode", "initial_only");
        settings.setProperty("snapshot.fetch.size", "10000");
        settings.setProperty("snapshot.max.threads", arguments[5]);
        settings.setProperty("snapshot.max.threads.multiplier", arguments[5]); // ranges of the table for each
        return settings;
    }

    private static void count(
        List<RecordChangeEvent<SourceRecord>> batch, RecordCommitter<RecordChangeEvent<SourceRecord>> committer
    ) throws InterruptedException {
        rows += batch.size();
        RecordChangeEvent<SourceRecord> newest = batch.get(batch.size() - 1);
        committer.markProcessed(newest);
        committer.markBatchFinished();
        if ("last".equals(((Struct) newest.record().value()).getStruct("source").getString("snapshot"))) {
            ended.countDown();
        }
    }

    /** Starts the clock. */
    private static final class Start extends Handler {
        @Override
        public void publish(LogRecord record) {
            if (record.getMessage().startsWith(READS_ROWS)) {
                cpuBefore = Engine.cpu();
                began = System.nanoTime();
            }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    }
}
