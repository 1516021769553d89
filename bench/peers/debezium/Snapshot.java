import com.sun.management.OperatingSystemMXBean;
import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.DebeziumEngine.RecordCommitter;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.logging.Handler;
import java.util.logging.Level;
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
        Logger.getLogger("").getHandlers()[0].setLevel(Level.SEVERE);
        LOG.addHandler(new Start());
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
            DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                .using(settings(arguments))
                .using(Snapshot::failed)
                .notifying(Snapshot::count)
                .build();
        Thread thread = new Thread(engine);
        thread.setDaemon(true);
        thread.start();
        ended.await();
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = cpu() - cpuBefore;
        System.out.println("{\"rows\": " + rows + ", \"seconds\": " + seconds + ", \"cpu_s\": " + cpu + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0); // the engine would first end its connector, which has nothing left to do
    }

    private static Properties settings(String[] arguments) {
        boolean mariadb = arguments[0].equals("mariadb");
        Properties settings = new Properties();
        settings.setProperty("name", "bench");
        settings.setProperty("topic.prefix", "bench");
        settings.setProperty("connector.class", mariadb
            ? "io.debezium.connector.mariadb.MariaDbConnector"
            : "io.debezium.connector.mysql.MySqlConnector");
        settings.setProperty("database.hostname", "127.0.0.1");
        settings.setProperty("database.port", arguments[1]);
        settings.setProperty("database.user", arguments[2]);
        settings.setProperty("database.password", arguments[3]);
        settings.setProperty("database.server.id", "4005");
        settings.setProperty("database.ssl.mode", mariadb ? "disable" : "disabled");
        settings.setProperty("driver.allowPublicKeyRetrieval", "true"); // MySQL's login without TLS
        settings.setProperty("database.include.list", arguments[4].substring(0, arguments[4].indexOf('.')));
        settings.setProperty("table.include.list", arguments[4]);
        settings.setProperty("include.schema.changes", "false"); // every record is a row
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore");
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.setProperty("snapshot.mode", "initial_only");
        settings.setProperty("snapshot.locking.mode", "none");
        settings.setProperty("snapshot.fetch.size", "10000");
        settings.setProperty("snapshot.max.threads", arguments[5]);
        settings.setProperty("snapshot.max.threads.multiplier", arguments[5]); // ranges of the table for each
        settings.setProperty("max.batch.size", "8192");
        settings.setProperty("max.queue.size", "32768");
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

    private static void failed(boolean success, String message, Throwable error) {
        System.err.println(message);
        if (error != null) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    private static double cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }

    /** Starts the clock. */
    private static final class Start extends Handler {
        @Override
        public void publish(LogRecord record) {
            if (record.getMessage().startsWith(READS_ROWS)) {
                cpuBefore = cpu();
                began = System.nanoTime();
            }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    }
}
