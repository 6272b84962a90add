// Reads messages as Python wrote them and writes them as Java does: one JSON object a line, in and out.

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Message;
import com.google.protobuf.TypeRegistry;
import com.google.protobuf.util.JsonFormat;
import io.topospread.v1.ErrorDetails;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

public final class Convert {
  private static final TypeRegistry DETAILS =
      TypeRegistry.newBuilder().add(ErrorDetails.getDescriptor()).build();

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, "UTF-8");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonObject answer;
      try {
        answer = convert(JsonParser.parseString(line).getAsJsonObject());
      } catch (Exception error) {
        answer = new JsonObject();
        answer.addProperty("error", error.toString());
      }
      out.println(answer);
    }
    out.flush();
  }

  /** A sample's bytes as JSON, and its JSON as bytes. */
  private static JsonObject convert(JsonObject sample) throws Exception {
    Message empty = emptyOf(sample.get("type").getAsString());
    byte[] binary = Base64.getDecoder().decode(sample.get("binary").getAsString());
    Message.Builder read = empty.newBuilderForType();
    JsonFormat.parser().usingTypeRegistry(DETAILS).merge(sample.get("json").toString(), read);
    JsonObject answer = new JsonObject();
    answer.add("json", JsonParser.parseString(
        JsonFormat.printer().usingTypeRegistry(DETAILS).print(empty.toBuilder().mergeFrom(binary).build())));
    answer.addProperty("binary", Base64.getEncoder().encodeToString(read.build().toByteArray()));
    return answer;
  }

  /** An empty message of the type, whose class is one of its own in the package that java_package names. */
  private static Message emptyOf(String type) throws Exception {
    String name = (type.startsWith("google.") ? "com." : "io.") + type;
    return (Message) Class.forName(name).getMethod("getDefaultInstance").invoke(null);
  }
}
