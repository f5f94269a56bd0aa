// What all programs ask the demo, and how they report: one JSON object on the last line.
export const server = process.env.LORAGATE_BASE_URL;
export const baseURL = `${server}/v1`;
export const apiKey = process.env.LORAGATE_API_KEY;
export const [wrongKey, unknownModel] = ["lg-invalid", "unknown-model"];
export const [adapter, base] = ["pirate", "loragate-demo"];
export const [question, second] = ["What is the capital of France?", "What is the capital of Italy?"];
export const weather = "What is the weather in Helsinki?";
export const cities = ["Rome", "Oslo", "Paris"];
export const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};

export const getWeather = ({ city }) => (city === "Helsinki" ? "sunny, 21 °C" : "unknown");
export const user = (content) => ({ role: "user", content });

/** Return what `name` of the error of a promise is. */
export async function failure(promise, name = (error) => error.constructor.name) {
  try {
    await promise;
  } catch (error) {
    return name(error);
  }
  return "none";
}

export const report = (outcomes) => console.log(JSON.stringify(outcomes));
