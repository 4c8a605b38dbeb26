"""Opens the chat of the desk in a headless Chromium, and does what a customer and the staff do. Usage: browser.py URL SCREENSHOTS"""

import os
import shutil
import sys
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

URL, SCREENSHOTS = sys.argv[1], Path(sys.argv[2])
SCREENSHOTS.mkdir(parents=True, exist_ok=True)
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def browser(scheme="light", width=900, height=1100):
    options = webdriver.ChromeOptions()
    for argument in ("--headless", "--disable-dev-shm-usage", f"--window-size={width},{height}"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    return driver


def until(driver, condition):
    return WebDriverWait(driver, 20, ignored_exceptions=[StaleElementReferenceException]).until(condition)


def text(driver):
    return driver.find_element(By.TAG_NAME, "main").text


def sees(driver, words):
    until(driver, lambda driver: words in text(driver))


def click(driver, label):
    path = f"//main//button[normalize-space()='{label}']"
    until(driver, lambda driver: [one for one in driver.find_elements(By.XPATH, path) if one.is_displayed()])[0].click()


def log_in(driver, name):
    driver.get(URL)
    until(driver, lambda driver: driver.find_element(By.NAME, "name").is_displayed())
    driver.find_element(By.NAME, "name").send_keys(name)
    driver.find_element(By.NAME, "password").send_keys(f"{name}-pw", Keys.ENTER)


def say(driver, words):
    until(driver, lambda driver: driver.find_element(By.ID, "input").is_displayed())
    driver.find_element(By.ID, "input").send_keys(words, Keys.ENTER)


def screenshot(driver, name):
    driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))


ada = browser()
log_in(ada, "ada")
click(ada, "Where are my parcels?")
sees(ada, "Order 7, difference engine, arrives tomorrow.")
say(ada, "Move the delivery of order 7")
click(ada, "Friday evening")
sees(ada, "Order 7 now arrives on Friday evening.")
say(ada, "Cancel order 8")
sees(ada, "Cancel order: shall I do that?")
screenshot(ada, "chat-approval")
click(ada, "Yes, please")
sees(ada, "Order 8, box of punched cards, is cancelled.")
say(ada, HOSTILE)
sees(ada, "I cannot")
say(ada, "Refund 80 euros for order 7")
sees(ada, "a colleague is checking this")
say(ada, "Where are my parcels?")
sees(ada, "Your message is answered once a colleague has decided.")
screenshot(ada, "chat-waiting")

# Another browser of the same customer sees the same, the staff sees what waits, and nobody else sees anything.
other = browser("dark")
log_in(other, "ada")
sees(other, "Your message is answered once a colleague has decided.")
sees(other, HOSTILE)
screenshot(other, "chat-dark")
eve = browser(width=640, height=820)
log_in(eve, "eve")
click(eve, "Move the delivery of order 7")
sees(eve, "you have no order 7")
assert "difference engine" not in text(eve)
grace = browser()
log_in(grace, "grace")
until(grace, lambda driver: "/runs" in driver.current_url and "refund" in driver.page_source)
until(grace, lambda driver: driver.find_elements(By.PARTIAL_LINK_TEXT, "Refund 80"))[0].click()
until(grace, lambda driver: [one for one in driver.find_elements(By.TAG_NAME, "button") if one.text == "Approve"])[0].click()
for driver in (ada, other):
    until(driver, lambda driver: text(driver).count("arrives tomorrow") == 4)
    assert "a colleague is checking this" not in text(driver)

say(ada, "Move the delivery of order 8")
sees(ada, "When should the box of punched cards arrive?")
screenshot(ada, "chat-question")
ada.refresh()
sees(ada, "When should the box of punched cards arrive?")
click(ada, "Saturday")
sees(ada, "Order 8 now arrives on Saturday.")
eve.find_element(By.ID, "fresh").click()
click(eve, "Where are my parcels?")
sees(eve, "Order 9, coat, arrives tomorrow.")
assert "you have no order 7" not in text(eve)
say(eve, "Refund 20 euros for order 9")
sees(eve, "Refunded 20 euros for order 9.")
say(eve, "Move the delivery of order 9")
sees(eve, "When should the coat arrive?")
screenshot(eve, "chat")
click(eve, "Saturday")
sees(eve, "Order 9 now arrives on Saturday.")

for driver in (ada, other, eve):
    assert driver.title == "Support desk" and not driver.find_elements(By.CSS_SELECTOR, "main img, main script")
    loud = [line["message"] for line in driver.get_log("browser") if line["level"] == "SEVERE"]
    # The chat asks who is logged in, and there is no icon.
    assert all("401" in line or "favicon" in line for line in loud), loud
for driver in (ada, other, eve, grace):
    driver.quit()
print("the chat works")
