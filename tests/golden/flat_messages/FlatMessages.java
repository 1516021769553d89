import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.connector.core.producer.MQMessageUtils;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Asks canal's own classes which messages its Kafka producer writes. A line in is the hex of an entry. */
public class FlatMessages {
    static final String[][] HASHES = {
        {"", "1", "true"}, {".*\\..*:$pk$", "3", "true"}, {".*\\..*:$pk$", "5", "false"}, {".*\\..*", "4", "true"},
        {"golden.t_int:id^ti,golden\\.t_s.*:c10^v300;golden\\.t_d.*", "7", "true"}
    };
    static final String[] TOPICS = {
        ".*\\..*", "golden", "gol.*", "golden.t_int,golden.T_STR", "ints:golden.t_int,rest:golden\\.t_.*,golden",
        "a:golden.t_int;golden.t_str,b:gold.*", "nothing.here"
    };

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        ThreadPoolExecutor one = new ThreadPoolExecutor(1, 1, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = lines.readLine()) != null) {
            byte[] raw = new byte[line.length() / 2];
            for (int i = 0; i < raw.length; i++) {
                raw[i] = (byte) Integer.parseInt(line.substring(2 * i, 2 * i + 2), 16);
            }
            Message message = new Message(7, true, Collections.singletonList(ByteString.copyFrom(raw)));
            List<Object> hashed = new ArrayList<>();
            for (String[] hash : HASHES) {
                Map<String, String> found = new LinkedHashMap<>();
                for (FlatMessage flat : MQMessageUtils.messageConverter(MQMessageUtils.buildMessageData(message, one), 7)) {
                    flat.setTs(1700000000000L);
                    FlatMessage[] parts = hash[0].isEmpty() ? new FlatMessage[] {flat}
                        : MQMessageUtils.messagePartition(flat, Integer.valueOf(hash[1]), hash[0], hash[2].equals("true"));
                    for (int at = 0; at < parts.length; at++) {
                        if (parts[at] != null) {
                            byte[] body = JSON.toJSONBytes(parts[at], JSONWriter.Feature.WriteNulls);
                            found.put(String.valueOf(at), new String(body, StandardCharsets.UTF_8));
                        }
                    }
                }
                hashed.add(found);
            }
            List<Object> topics = new ArrayList<>();
            for (String rule : TOPICS) {
                topics.add(new TreeSet<>(MQMessageUtils.messageTopics(message, "fallback", rule).keySet()));
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("messages", hashed);
            answer.put("topics", topics);
            out.println(JSON.toJSONString(answer));
        }
        out.flush();
        System.exit(0);
    }
}
