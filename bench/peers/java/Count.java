import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.net.InetSocketAddress;

/**
 * canal's simple client: counts rows, as the headers of the entries tell them, and acknowledges. Prints one JSON object:
 * rows, and seconds from connecting to the last row.
 *
 * Arguments: port, destination, rows, kilobytes a batch.
 */
public final class Count {
    public static void main(String[] arguments) throws Exception {
        long wanted = Long.parseLong(arguments[2]);
        int size = Integer.parseInt(arguments[3]);
        long began = System.nanoTime();
        CanalConnector connector = CanalConnectors.newSingleConnector(
            new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), arguments[1], "", "");
        connector.connect();
        connector.subscribe();
        long seen = 0;
        while (seen < wanted) {
            Message message = connector.getWithoutAck(size);
            if (message.getId() == -1 || message.getEntries().isEmpty()) {
                Thread.sleep(1);
                continue;
            }
            for (CanalEntry.Entry entry : message.getEntries()) {
                if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA) {
                    seen += rows(entry.getHeader());
                }
            }
            connector.ack(message.getId());
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.println("{\"rows\": " + wanted + ", \"seconds\": " + seconds + "}");
        System.out.flush();
        connector.disconnect();
    }

    private static int rows(CanalEntry.Header header) {
        for (CanalEntry.Pair pair : header.getPropsList()) {
            if (pair.getKey().equals("rowsCount")) {
                return Integer.parseInt(pair.getValue());
            }
        }
        return 0;
    }
}
