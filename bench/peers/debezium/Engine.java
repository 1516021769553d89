import com.sun.management.OperatingSystemMXBean;
import io.debezium.engine.DebeziumEngine;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.logging.Level;
import java.util.logging.Logger;

/** What the programs share: settings of Debezium's embedded engine, its thread, and the figures that they print. */
final class Engine {
    private Engine() {}

    /**
     * Returns the settings for one table.
     *
     * Arguments: mariadb or mysql, the database's port, user, password, schema.table; others are not read.
     */
    static Properties settings(String[] arguments, String serverId) {
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
        settings.setProperty("database.server.id", serverId);
        settings.setProperty("database.ssl.mode", mariadb ? "disable" : "disabled");
        settings.setProperty("driver.allowPublicKeyRetrieval", "true"); // MySQL's login without TLS
        settings.setProperty("database.include.list", arguments[4].substring(0, arguments[4].indexOf('.')));
        settings.setProperty("table.include.list", arguments[4]);
        settings.setProperty("include.schema.changes", "false"); // every record is a row
        settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        settings.setProperty("snapshot.locking.mode", "none");
        settings.setProperty("max.batch.size", "8192");
        settings.setProperty("max.queue.size", "32768");
        return settings;
    }

    /** Lets only errors through to the terminal. */
    static void quiet() {
        Logger.getLogger("").getHandlers()[0].setLevel(Level.SEVERE);
    }

    /** Runs an engine in a thread of its own. */
    static void start(DebeziumEngine<?> engine) {
        Thread thread = new Thread(engine);
        thread.setDaemon(true);
        thread.start();
    }

    /** Prints the figures since a moment as one JSON object, and ends the program. */
    static void end(long rows, long began, double cpuBefore) {
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = cpu() - cpuBefore;
        System.out.println("{\"rows\": " + rows + ", \"seconds\": " + seconds + ", \"cpu_s\": " + cpu + "}");
        System.out.flush();
        Runtime.getRuntime().halt(0); // the engine would first end its connector, which has nothing left to do
    }

    /** Ends the program when the engine has ended by itself. */
    static void failed(boolean success, String message, Throwable error) {
        System.err.println(message);
        if (error != null) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(1);
    }

    /** Returns the processor seconds of this program. */
    static double cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9;
    }
}
